// IQ3_XXS.
#include "matvec.cuh"

MATVEC(matvec_iq3_xxs, Iq3Xxs)
