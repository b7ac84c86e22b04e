// IQ1_S.
#include "matvec.cuh"

MATVEC(matvec_iq1_s, Iq1S)
