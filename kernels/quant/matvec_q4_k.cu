// Q4_K.
#include "matvec.cuh"

MATVEC(matvec_q4_k, Q4K)
