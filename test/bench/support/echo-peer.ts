import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { parsePrompt, turnMessages } from './turn-messages.ts'

// Answers each line with itself and the messages of the turn that it asks for: as many as Ash sends for one.
const server = createServer((socket) => {
  createInterface({ input: socket }).on('line', (line) => {
    const { content } = JSON.parse(line) as { content: unknown }
    const messages = [...turnMessages(parsePrompt(content))].map((message) => JSON.stringify(message))
    socket.write(`${[line, ...messages, 'end'].join('\n')}\n`)
  })
})
server.listen(process.argv[2], () => process.send?.('ready'))
process.on('disconnect', () => process.exit(0))
