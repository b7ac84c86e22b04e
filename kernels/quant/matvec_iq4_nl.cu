// IQ4_NL.
#include "matvec.cuh"

MATVEC(matvec_iq4_nl, Iq4Nl)
