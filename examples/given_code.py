"""A user hands code to an agent. The agent runs it and answers with the output.

python examples/given_code.py [--docker [IMAGE]]
"""

from __future__ import annotations

import asyncio

from settings import Settings, read_settings

from cellblock import CancellationToken
from cellblock.agents import CodeExecutorAgent, TextMessage

MESSAGE = """Please count for me how long the words of this sentence are.

```sh
echo "The quick brown fox jumps over the lazy dog" | tr ' ' '\\n' > words.txt
wc -l < words.txt
```

```python
from collections import Counter

lengths = Counter(len(word.strip()) for word in open("words.txt"))
for length, count in sorted(lengths.items()):
    print(f"{count} words of {length} letters")
```
"""


async def main(settings: Settings) -> None:
    async with settings.executor() as executor:
        agent = CodeExecutorAgent("code_executor", executor)
        message = TextMessage(content=MESSAGE, source="user")
        response = await agent.on_messages([message], CancellationToken())
        print(response.chat_message.to_text())


if __name__ == "__main__":
    asyncio.run(main(read_settings("given_code", __doc__)))
