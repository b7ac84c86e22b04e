// Q5_1.
#include "matvec.cuh"

MATVEC(matvec_q5_1, Q5_1)
