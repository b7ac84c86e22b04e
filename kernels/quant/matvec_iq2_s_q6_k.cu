// IQ2_S and Q6_K.
#include "matvec.cuh"

MATVEC_PAIR(matvec_iq2_s_q6_k, Iq2S, Q6K)
