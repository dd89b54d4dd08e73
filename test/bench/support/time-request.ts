import http from 'node:http'

const agent = new http.Agent({ keepAlive: true, maxSockets: 8 })

/** Milliseconds from sending a POST to the last byte of its reply, over a connection that is kept. */
export function timeRequest(
  url: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<number> {
  const text = JSON.stringify(body)
  return new Promise((resolve, reject) => {
    const started = performance.now()
    const request = http.request(
      url,
      {
        method: 'POST',
        agent,
        headers: {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(text),
          ...headers,
        },
      },
      (response) => {
        let reply = ''
        response.setEncoding('utf8')
        response.on('data', (chunk: string) => {
          reply += chunk
        })
        response.on('end', () => {
          if (response.statusCode === 200 && reply.includes('event: done'))
            resolve(performance.now() - started)
          else reject(new Error(`${response.statusCode}: ${reply.slice(0, 500)}`))
        })
      },
    )
    request.on('error', reject)
    request.end(text)
  })
}
