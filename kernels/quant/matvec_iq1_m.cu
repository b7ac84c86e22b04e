// IQ1_M.
#include "matvec.cuh"

MATVEC(matvec_iq1_m, Iq1M)
