// One token's products: launches of several tasks against the definition in docs/ARITHMETIC.md, weight by weight.
// unit: quant/matvec_iq2_xxs_q6_k.cu
// unit: quant/matvec_iq2_s_q6_k.cu
// unit: quant/matvec_iq3_xxs_q6_k.cu
// unit: quant/matvec_q6_k_q8_0.cu
// unit: quant/matvec_iq2_xxs_q6_k.cu --arch 700 --ns iq2_xxs_70
// unit: quant/matvec_iq2_s_q6_k.cu --arch 800 --ns iq2_s_80
// unit: quant/matvec_iq3_xxs_q6_k.cu --arch 750 --ns iq3_xxs_75
// unit: quant/matvec_q6_k_q8_0.cu --arch 860 --ns q6_k_86
// unit: quant/matvec_iq2_xxs_q6_k.cu --arch 1200 --ns iq2_xxs_120
// unit: quant/matvec_iq2_s_q6_k.cu --arch 1000 --ns iq2_s_100
#include "matvec_iq2_xxs_q6_k.unit"
#include "matvec_iq2_s_q6_k.unit"
#include "matvec_iq3_xxs_q6_k.unit"
#include "matvec_q6_k_q8_0.unit"
#include "iq2_xxs_70.unit"
#include "iq2_s_80.unit"
#include "iq3_xxs_75.unit"
#include "q6_k_86.unit"
#include "iq2_xxs_120.unit"
#include "iq2_s_100.unit"
#include "emu_test.h"
#include "matvec.h"

int main() {
#define RUN(SPACE, NAME, A, B) run<SPACE::Tasks, SPACE::Shape<SPACE::A>, SPACE::Shape<SPACE::B>>(#SPACE, SPACE::NAME, A##_, B##_)
    const Format Iq2Xxs_ = {IQ2_XXS, 66, 256}, Iq2S_ = {IQ2_S, 82, 256}, Iq3Xxs_ = {IQ3_XXS, 98, 256}, Q6K_ = {Q6_K, 210, 256}, Q6KTogether_ = Q6K_,
                 Q8_0_ = {Q8_0, 34, 32};
    RUN(matvec_iq2_xxs_q6_k, matvec_iq2_xxs_q6_k, Iq2Xxs, Q6KTogether);
    RUN(matvec_iq2_s_q6_k, matvec_iq2_s_q6_k, Iq2S, Q6K);
    RUN(matvec_iq3_xxs_q6_k, matvec_iq3_xxs_q6_k, Iq3Xxs, Q6K);
    RUN(matvec_q6_k_q8_0, matvec_q6_k_q8_0, Q6K, Q8_0);
    RUN(iq2_xxs_70, matvec_iq2_xxs_q6_k, Iq2Xxs, Q6KTogether);
    RUN(iq2_s_80, matvec_iq2_s_q6_k, Iq2S, Q6K);
    RUN(iq3_xxs_75, matvec_iq3_xxs_q6_k, Iq3Xxs, Q6K);
    RUN(q6_k_86, matvec_q6_k_q8_0, Q6K, Q8_0);
    RUN(iq2_xxs_120, matvec_iq2_xxs_q6_k, Iq2Xxs, Q6KTogether);
    RUN(iq2_s_100, matvec_iq2_s_q6_k, Iq2S, Q6K);
    return end();
}
