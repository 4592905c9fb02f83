"""Not there: rueda has no key-value store over HTTP, which would be open to everybody."""

from horovod._absent import absent

_INSTEAD = "use horovod.run, which brings functions and results itself"
read_data_from_kvstore = absent("horovod.runner.http.http_client.read_data_from_kvstore", _INSTEAD)
put_data_into_kvstore = absent("horovod.runner.http.http_client.put_data_into_kvstore", _INSTEAD)
