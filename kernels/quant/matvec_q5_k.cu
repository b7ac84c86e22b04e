// Q5_K.
#include "matvec.cuh"

MATVEC(matvec_q5_k, Q5K)
