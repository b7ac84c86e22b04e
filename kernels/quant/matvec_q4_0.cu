// Q4_0.
#include "matvec.cuh"

MATVEC(matvec_q4_0, Q4_0)
