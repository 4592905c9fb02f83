// Makes responses: what every member is told about a tensor on which the ranks agree, or about names
// that failed. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

// Precondition: find_mismatch() finds none, and each request has passed check_request().
Candidate make_candidate(const CompleteTensor& tensor);

// All names are of one process set.
Failure make_failure(int32_t process_set, std::vector<FailedName> failed, const Status& why);

// How many rows rank r of n receives from a reducescatter of `rows` rows: rows / n, and one more if r is less
// than rows % n.
int64_t reducescatter_rows(int64_t rows, Rank n, Rank r);

}  // namespace rueda::control
