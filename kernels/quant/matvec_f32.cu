// F32.
#include "matvec.cuh"

MATVEC(matvec_f32, F32)
