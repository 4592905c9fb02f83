// The file from which Prometheus reads the token of a job's ports for metrics. Any thread.
#pragma once

#include <string>

#include "rueda/base/status.h"

namespace rueda::status {

// The token in a file that nobody may write, such as a Secret of Kubernetes: whoever runs the job has chosen
// it. Empty if there is no such file; the ranks then write their own token. It must be of root or of this
// user.
Result<std::string> given_token(const std::string& path);

// Writes the token and a line end into a file that its owner may read and write (0600). A file that exists
// keeps its mode and its group, and so whoever may read it; it must be of this user, and no other user may
// write it, and only its group may read it.
// Does nothing if the file is not this user's, or has another token by now.
void remove_token_file(const std::string& path, const std::string& token);
Status write_token_file(const std::string& path, const std::string& token);

}  // namespace rueda::status
