// IQ2_XXS and Q6_K.
#include "matvec.cuh"

// The compiler gives a kernel the registers that its largest part needs: this part lets IQ2_XXS have 111 instead of 96, with which it
// asks for more look-ups at once (gates and ups of eight sequences 88 us, not 93).
struct Q6KTogether : Q6K {
    static constexpr u32 TOGETHER = 4;
};

MATVEC_PAIR(matvec_iq2_xxs_q6_k, Iq2Xxs, Q6KTogether)
