// F16.
#include "matvec.cuh"

MATVEC(matvec_f16, F16)
