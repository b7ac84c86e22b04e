// unit: quant/matvec_q6_k.cu
// unit: quant/matvec_iq2_xxs.cu --arch 800
// unit: quant/matvec_iq2_s.cu --arch 800
// unit: quant/matvec_iq3_xxs.cu --arch 800
// unit: quant/matvec_q2_k.cu
// unit: quant/matvec_q3_k.cu
// unit: quant/matvec_q4_k.cu
// unit: quant/matvec_q5_k.cu
// unit: quant/matvec_iq4_xs.cu
// unit: quant/matvec_iq1_s.cu
// unit: quant/matvec_iq1_m.cu
// unit: quant/matvec_iq2_xs.cu
// unit: quant/matvec_iq3_s.cu
// unit: quant/matvec_q8_0.cu
// unit: quant/matvec_q4_0.cu
// unit: quant/matvec_q4_1.cu
// unit: quant/matvec_q5_0.cu
// unit: quant/matvec_q5_1.cu
// unit: quant/matvec_iq4_nl.cu
// unit: quant/matvec_mxfp4.cu
// unit: rows/product_wide.cu --arch 900
// unit: rows/product_few.cu --arch 900
// unit: rows/product_narrow.cu --arch 900
// unit: rows/quantize.cu
#include "matvec_q6_k.unit"
#include "matvec_iq2_xxs.unit"
#include "matvec_iq2_s.unit"
#include "matvec_iq3_xxs.unit"
#include "matvec_q2_k.unit"
#include "matvec_q3_k.unit"
#include "matvec_q4_k.unit"
#include "matvec_q5_k.unit"
#include "matvec_iq4_xs.unit"
#include "matvec_iq1_s.unit"
#include "matvec_iq1_m.unit"
#include "matvec_iq2_xs.unit"
#include "matvec_iq3_s.unit"
#include "matvec_q8_0.unit"
#include "matvec_q4_0.unit"
#include "matvec_q4_1.unit"
#include "matvec_q5_0.unit"
#include "matvec_q5_1.unit"
#include "matvec_iq4_nl.unit"
#include "matvec_mxfp4.unit"
#include "product_wide.unit"
#include "product_few.unit"
#include "product_narrow.unit"
#include "quantize.unit"
#include "emu_test.h"
#include "products.h"
int main(int argc, char** argv) { const char* only = argc > 1 ? argv[1] : nullptr;
  if (!only || !strcmp(only, "q6_k")) { Format f = {"q6_k", 0, 210, 256, {208}, 0, 0, 0, 2};
    run<matvec_q6_k::Tasks, matvec_q6_k::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_q6_k::matvec_q6_k, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, product_few::rows_wide_few, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq2_xxs")) { Format f = {"iq2_xxs", 1, 66, 256, {0}, 256, 128, 12288, 4};
    run<matvec_iq2_xxs::Tasks, matvec_iq2_xxs::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq2_xxs::matvec_iq2_xxs, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq2_s")) { Format f = {"iq2_s", 2, 82, 256, {0}, 1024, 256, 10240, 4};
    run<matvec_iq2_s::Tasks, matvec_iq2_s::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq2_s::matvec_iq2_s, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq3_xxs")) { Format f = {"iq3_xxs", 3, 98, 256, {0}, 256, 128, 12288, 2};
    run<matvec_iq3_xxs::Tasks, matvec_iq3_xxs::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq3_xxs::matvec_iq3_xxs, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "q2_k")) { Format f = {"q2_k", 4, 84, 256, {80,82}, 0, 0, 0, 4};
    run<matvec_q2_k::Tasks, matvec_q2_k::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_q2_k::matvec_q2_k, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, product_few::rows_wide_few, nullptr, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "q3_k")) { Format f = {"q3_k", 5, 110, 256, {108}, 0, 0, 0, 2};
    run<matvec_q3_k::Tasks, matvec_q3_k::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_q3_k::matvec_q3_k, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, product_few::rows_wide_few, nullptr, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "q4_k")) { Format f = {"q4_k", 6, 144, 256, {0,2}, 0, 0, 0, 2};
    run<matvec_q4_k::Tasks, matvec_q4_k::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_q4_k::matvec_q4_k, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, product_few::rows_wide_few, nullptr, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "q5_k")) { Format f = {"q5_k", 7, 176, 256, {0,2}, 0, 0, 0, 2};
    run<matvec_q5_k::Tasks, matvec_q5_k::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_q5_k::matvec_q5_k, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, product_few::rows_wide_few, nullptr, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq4_xs")) { Format f = {"iq4_xs", 8, 136, 256, {0}, 0, 0, 0, 2};
    run<matvec_iq4_xs::Tasks, matvec_iq4_xs::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq4_xs::matvec_iq4_xs, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, product_few::rows_wide_few, nullptr, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq1_s")) { Format f = {"iq1_s", 9, 50, 256, {0}, 2048, 0, 8192, 4};
    run<matvec_iq1_s::Tasks, matvec_iq1_s::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq1_s::matvec_iq1_s, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq1_m")) { Format f = {"iq1_m", 10, 56, 256, {}, 2048, 0, 8192, 4};
    run<matvec_iq1_m::Tasks, matvec_iq1_m::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq1_m::matvec_iq1_m, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq2_xs")) { Format f = {"iq2_xs", 11, 74, 256, {0}, 512, 128, 10240, 4};
    run<matvec_iq2_xs::Tasks, matvec_iq2_xs::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq2_xs::matvec_iq2_xs, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "iq3_s")) { Format f = {"iq3_s", 12, 110, 256, {0}, 512, 256, 12288, 2};
    run<matvec_iq3_s::Tasks, matvec_iq3_s::Task, product_wide::RowsTasks, product_few::RowsTasks>(f, matvec_iq3_s::matvec_iq3_s, product_wide::rows_wide, product_wide::rows_wide_small, product_wide::rows_wide_double, nullptr, product_few::rows_book_few, product_few::rows_wide_experts); }
  if (!only || !strcmp(only, "q8_0")) { Format f = {"q8_0", 0, 34, 32, {0}, 0, 0, 0, 1};
    run<matvec_q8_0::Tasks, matvec_q8_0::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_q8_0::matvec_q8_0, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  if (!only || !strcmp(only, "q4_0")) { Format f = {"q4_0", 1, 18, 32, {0}, 0, 0, 0, 2};
    run<matvec_q4_0::Tasks, matvec_q4_0::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_q4_0::matvec_q4_0, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  if (!only || !strcmp(only, "q4_1")) { Format f = {"q4_1", 2, 20, 32, {0,2}, 0, 0, 0, 2};
    run<matvec_q4_1::Tasks, matvec_q4_1::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_q4_1::matvec_q4_1, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  if (!only || !strcmp(only, "q5_0")) { Format f = {"q5_0", 3, 22, 32, {0}, 0, 0, 0, 2};
    run<matvec_q5_0::Tasks, matvec_q5_0::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_q5_0::matvec_q5_0, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  if (!only || !strcmp(only, "q5_1")) { Format f = {"q5_1", 4, 24, 32, {0,2}, 0, 0, 0, 2};
    run<matvec_q5_1::Tasks, matvec_q5_1::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_q5_1::matvec_q5_1, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  if (!only || !strcmp(only, "iq4_nl")) { Format f = {"iq4_nl", 5, 18, 32, {0}, 0, 0, 0, 2};
    run<matvec_iq4_nl::Tasks, matvec_iq4_nl::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_iq4_nl::matvec_iq4_nl, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  if (!only || !strcmp(only, "mxfp4")) { Format f = {"mxfp4", 6, 17, 32, {}, 0, 0, 0, 2};
    run<matvec_mxfp4::Tasks, matvec_mxfp4::Task, product_narrow::RowsTasks, product_narrow::RowsTasks>(f, matvec_mxfp4::matvec_mxfp4, product_narrow::rows_narrow, product_narrow::rows_narrow_small, product_narrow::rows_narrow, product_narrow::rows_narrow_few, nullptr, product_narrow::rows_narrow_experts); }
  return test::end(); }
