/** A file of a form. */
export interface FormFile {
  /** Without folders. */
  name: string
  content: Uint8Array | string | AsyncIterable<Uint8Array>
}

/** The files as a multipart/form-data body that is made while it is sent: `fetch` would hold a form in memory. */
export function toMultipart(files: FormFile[]): { stream: ReadableStream<Uint8Array>; contentType: string } {
  const boundary = `ash-${crypto.randomUUID()}`
  const parts = writeParts(files, boundary)
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await parts.next()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: async () => void (await parts.return()),
  })
  return { stream, contentType: `multipart/form-data; boundary=${boundary}` }
}

async function* writeParts(files: FormFile[], boundary: string): AsyncGenerator<Uint8Array, void, undefined> {
  const encoder = new TextEncoder()
  for (const { name, content } of files) {
    const disposition = `form-data; name="files"; filename="${escapeName(name)}"`
    yield encoder.encode(
      `--${boundary}\r\ncontent-disposition: ${disposition}\r\ncontent-type: application/octet-stream\r\n\r\n`,
    )
    if (typeof content === 'string') yield encoder.encode(content)
    else if (content instanceof Uint8Array) yield content
    else yield* content
    yield encoder.encode('\r\n')
  }
  yield encoder.encode(`--${boundary}--\r\n`)
}

/** As browsers do it: a name must not end its header, or add one. */
const escapeName = (name: string) =>
  name.replace(
    /["\r\n]/g,
    (character) => `%${character.charCodeAt(0).toString(16).padStart(2, '0').toUpperCase()}`,
  )
