// BF16.
#include "matvec.cuh"

MATVEC(matvec_bf16, Bf16)
