// IQ4_XS.
#include "matvec.cuh"

MATVEC(matvec_iq4_xs, Iq4Xs)
