// Sockets that a child of fork() closes at once. If a child, such as a data loader's worker, kept them open,
// the other end would not notice the death of the parent, because TCP reports it only when the last copy is
// closed. Any thread.
#pragma once

namespace rueda::fork_guard {

// Returns false if the descriptor is not a socket or its number is too large for the table. A child
// then keeps it.
bool add(int fd);
// Call it before closing the descriptor. Returns false if it is not in the table, as in a child that has
// already closed it. The number may then belong to another file.
bool forget(int fd);

}  // namespace rueda::fork_guard
