// IQ2_XXS.
#include "matvec.cuh"

MATVEC(matvec_iq2_xxs, Iq2Xxs)
