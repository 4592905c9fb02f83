// A key per user, for jobs whose launcher hands out no secret.
#pragma once

#include <string>

#include "rueda/base/handshake.h"
#include "rueda/base/status.h"
#include "rueda/store/world.h"

namespace rueda::store {

// $XDG_CONFIG_HOME/rueda/key, else ~/.config/rueda/key.
Result<std::string> user_key_path(const GetEnv& get_env);
// Reads the key; makes it (0600) where there is none. Processes that race to make it end with the same one.
Result<Secret> user_key(const std::string& path);
// Derives the secret of one job, so that what one job shows of its secret says nothing about another's.
Secret secret_of_job(const Secret& key, const std::string& job);

}  // namespace rueda::store
