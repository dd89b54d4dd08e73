import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { turnMessages } from './turn-messages.ts'

// Answers each line with the messages of a turn.
const server = createServer((socket) => {
  createInterface({ input: socket }).on('line', () => {
    for (const message of turnMessages()) socket.write(`${JSON.stringify(message)}\n`)
    socket.write('end\n')
  })
})
server.listen(process.argv[2], () => process.send?.('ready'))
process.on('disconnect', () => process.exit(0))
