// Q8_0.
#include "matvec.cuh"

MATVEC(matvec_q8_0, Q8_0)
