// Q6_K and Q8_0.
#include "matvec.cuh"

MATVEC_PAIR(matvec_q6_k_q8_0, Q6K, Q8_0)
