// Q3_K.
#include "matvec.cuh"

MATVEC(matvec_q3_k, Q3K)
