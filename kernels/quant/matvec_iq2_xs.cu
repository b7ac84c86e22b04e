// IQ2_XS.
#include "matvec.cuh"

MATVEC(matvec_iq2_xs, Iq2Xs)
