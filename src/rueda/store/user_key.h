// A key per user, for jobs whose launcher does not provide a secret.
#pragma once

#include <string>

#include "rueda/base/handshake.h"
#include "rueda/base/status.h"
#include "rueda/store/world.h"

namespace rueda::store {

// $XDG_CONFIG_HOME/rueda/key, or ~/.config/rueda/key if the variable is not set.
Result<std::string> user_key_path(const GetEnv& get_env);
// Reads the key, and creates it (mode 0600) if there is none. Processes that create it at the same time get
// the same key.
Result<Secret> user_key(const std::string& path);
// Derives the secret of one job. What a job reveals about its secret then says nothing about the secret
// of another job.
Secret secret_of_job(const Secret& key, const std::string& job);

}  // namespace rueda::store
