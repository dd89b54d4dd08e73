/**
 * Runs an S3 server on a folder for as long as its standard input stays open: test workers are killed without
 * warning. Arguments: folder, port (0 for any), bucket. Writes the port as one line once it answers.
 */
import { once } from 'node:events'
import S3rver from 's3rver'

const [directory = '', port = '0', bucket = ''] = process.argv.slice(2)
const server = new S3rver({
  directory,
  port: Number(port),
  address: '127.0.0.1',
  silent: true,
  configureBuckets: [{ name: bucket, configs: [] }],
})
const address = await server.run()
process.stdout.write(`${address.port}\n`)
await once(process.stdin.resume(), 'end')
process.exit()
