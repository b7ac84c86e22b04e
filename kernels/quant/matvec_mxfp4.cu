// MXFP4.
#include "matvec.cuh"

MATVEC(matvec_mxfp4, Mxfp4)
