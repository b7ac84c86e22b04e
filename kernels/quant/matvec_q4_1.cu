// Q4_1.
#include "matvec.cuh"

MATVEC(matvec_q4_1, Q4_1)
