// The file from which Prometheus reads the token of a job's ports for metrics. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::status {

// The token in a file that nobody may write, such as a Secret of Kubernetes: whoever runs the job has chosen
// it. Empty if there is no such file; the ranks then write their own token. It must be of root or of this
// user.
Result<std::string> given_token(const std::string& path);

// The token is HMAC-SHA-256 of the job's secret and these words, in hex.
inline constexpr std::string_view kTokenLabel = "rueda metrics";

// Writes the token and a line end into a file that its owner may read and write (0600). A file that exists
// keeps its mode and its group, and so whoever may read it; it must be of this user, and no other user may
// write it, and only its group may read it.
Status write_token_file(const std::string& path, const std::string& token);
// Does nothing if the file is not this user's, or has another token by now.
void remove_token_file(const std::string& path, const std::string& token);

// Where ranks write it, if the user names no file.
std::string token_file_path(const std::string& folder, int64_t port);
// Removes all token files of a job, whatever its ports were: for a job whose ranks were killed before they
// could remove theirs.
void remove_token_files(const std::string& folder, const std::string& token);

}  // namespace rueda::status
