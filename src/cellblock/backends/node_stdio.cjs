// Loaded before code for Node on this machine: what it has written is out, also when `process.exit` or an error comes next.
'use strict';

function madeBlocking(stream) {
  const handle = stream && stream._handle; // a file or a terminal is written at once anyway
  if (handle && handle.setBlocking && handle.constructor.name === 'Pipe') handle.setBlocking(true);
  return stream;
}

for (const name of ['stdout', 'stderr']) {
  const { get, ...rest } = Object.getOwnPropertyDescriptor(process, name);
  let stream; // made at the first use, as without us: that takes some time
  Object.defineProperty(process, name, { ...rest, get: () => stream || (stream = madeBlocking(get.call(process))) });
}
