// IQ3_XXS and Q6_K.
#include "matvec.cuh"

MATVEC_PAIR(matvec_iq3_xxs_q6_k, Iq3Xxs, Q6K)
