// Q6_K.
#include "matvec.cuh"

MATVEC(matvec_q6_k, Q6K)
