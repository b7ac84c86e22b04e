// IQ2_XXS and Q6_K.
#include "matvec.cuh"

MATVEC_PAIR(matvec_iq2_xxs_q6_k, Iq2Xxs, Q6K)
