// Tells TensorFlow about the operations and their kernels. At load, once.
#pragma once

#include <string>

namespace rueda::tensorflow {

// Returns an empty string, or a sentence that says why it failed (for example, another library has
// taken the names).
std::string register_everything();

}  // namespace rueda::tensorflow
