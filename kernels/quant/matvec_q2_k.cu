// Q2_K.
#include "matvec.cuh"

MATVEC(matvec_q2_k, Q2K)
