// Sockets that a child of fork() closes at once. A child that kept them open (a data loader's worker, say)
// would hide its parent's death from the other end: TCP tells of it only when the last copy is closed. Any
// thread.
#pragma once

namespace rueda::fork_guard {

// False when the descriptor is no socket or its number is beyond the table; then a child keeps it.
bool add(int fd);
// To be called before closing. False when it is not in the table, as in a child that has closed it already:
// then the number may be somebody else's by now.
bool forget(int fd);

}  // namespace rueda::fork_guard
