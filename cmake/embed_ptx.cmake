# cmake -DPTX=… -DOUT=… -P embed_ptx.cmake: writes the text of PTX into the source file OUT.
file(READ ${PTX} text)
file(WRITE ${OUT} "// Written by cmake/embed_ptx.cmake.
#include \"rueda/memory/cuda/kernels_ptx.h\"

namespace rueda::cuda {
const char* const kKernelsPtx = R\"ptx(${text})ptx\";
}  // namespace rueda::cuda
")
