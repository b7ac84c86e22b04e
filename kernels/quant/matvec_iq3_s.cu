// IQ3_S.
#include "matvec.cuh"

MATVEC(matvec_iq3_s, Iq3S)
