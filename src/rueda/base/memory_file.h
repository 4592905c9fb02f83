// Shared memory without a name: a memfd whose size is sealed, so that no process can shrink it under the
// others that map it. Any thread.
#pragma once

#include <cstddef>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda {

// The largest file that this process may create. Beyond this size the kernel would send SIGXFSZ.
size_t max_file_bytes();

// A failure says what to do against its cause.
Result<UniqueFd> make_memory_file(size_t bytes);

// Whether a descriptor that another process sent is such a file.
bool is_sealed_memory(int fd);

}  // namespace rueda
