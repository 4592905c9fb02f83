// What every member is told about a tensor on which the ranks agree, or about names that failed. Pure.
#pragma once

#include <span>

#include "rueda/base/status.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

// The ranks agree (find_mismatch said so) and each request passed check_request.
Candidate make_candidate(const CompleteTensor& tensor);

// kError for names of one process set; like is the request whose kind, dtype and set the response shows.
Response make_error(const Request& like, std::vector<Entry> entries, const Status& why);

}  // namespace rueda::control
