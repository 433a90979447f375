// Node loads this module before the code of a block. It makes writes to pipes block, so that no output is lost when the code
// calls `process.exit` or fails.
'use strict';

function makeBlocking(stream) {
  const handle = stream && stream._handle; // writes to files and terminals block anyway
  if (handle && handle.setBlocking && handle.constructor.name === 'Pipe') handle.setBlocking(true);
  return stream;
}

for (const name of ['stdout', 'stderr']) {
  const { get, ...rest } = Object.getOwnPropertyDescriptor(process, name);
  let stream; // created on first use, as in plain Node, because it takes time
  Object.defineProperty(process, name, { ...rest, get: () => stream || (stream = makeBlocking(get.call(process))) });
}
