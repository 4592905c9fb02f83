// For processes of an elastic job without a launcher, which serve stores themselves.
#pragma once

#include <string>

#include "rueda/store/world.h"

namespace rueda::store {

// Whether the processes of this job are to decide its views themselves (RUEDA_ELASTIC=members), and no
// launcher does. Pure.
bool is_elastic_by_members(const GetEnv& get_env);
// The name of this host, for messages: RUEDA_HOSTNAME, HOROVOD_HOSTNAME, or that of the system.
std::string host_name(const GetEnv& get_env);
// The secret of a job whose launcher gives none: from secret_file, or from the key file of the user.
Result<Secret> secret_of(const World& world);

}  // namespace rueda::store
