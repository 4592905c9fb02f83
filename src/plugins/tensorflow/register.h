// Tells TensorFlow about the operations and their kernels. At load, once.
#pragma once

#include <string>

namespace rueda::tensorflow {

// Returns an empty string, or the sentence why not (another library has taken the names, for instance).
std::string register_everything();

}  // namespace rueda::tensorflow
