// Q5_0.
#include "matvec.cuh"

MATVEC(matvec_q5_0, Q5_0)
