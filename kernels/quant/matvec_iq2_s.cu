// IQ2_S.
#include "matvec.cuh"

MATVEC(matvec_iq2_s, Iq2S)
