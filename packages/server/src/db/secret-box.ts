import { createCipheriv, createDecipheriv, hkdfSync, randomBytes, scryptSync } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createPrivateFile } from './private-file.ts'

const KEY_BYTES = 32
const IV_BYTES = 12
const TAG_BYTES = 16
const CIPHER = 'aes-256-gcm'
const FORMAT = 'v1'

/** Seals JSON for the database. `aad` ties the text to its row: moved to another row it does not open. */
export class SecretBox {
  readonly #key: Buffer

  constructor(key: Buffer) {
    this.#key = key
  }

  /** A key of its own for another use, always the same for the same `purpose`. */
  deriveKey(purpose: string): Buffer {
    return Buffer.from(hkdfSync('sha256', this.#key, '', purpose, KEY_BYTES))
  }

  seal(value: unknown, aad: string): string {
    const iv = randomBytes(IV_BYTES)
    const cipher = createCipheriv(CIPHER, this.#key, iv).setAAD(Buffer.from(aad))
    const sealed = Buffer.concat([cipher.update(JSON.stringify(value)), cipher.final()])
    return `${FORMAT}.${Buffer.concat([iv, sealed, cipher.getAuthTag()]).toString('base64url')}`
  }

  /** Throws when the text was changed, belongs to another row or was sealed with another key. */
  open(sealed: string, aad: string): unknown {
    const [format, body] = sealed.split('.')
    const bytes = Buffer.from(body ?? '', 'base64url')
    if (format !== FORMAT || bytes.length < IV_BYTES + TAG_BYTES) throw new Error(CANNOT_OPEN)
    const decipher = createDecipheriv(CIPHER, this.#key, bytes.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    })
    decipher.setAAD(Buffer.from(aad)).setAuthTag(bytes.subarray(-TAG_BYTES))
    return JSON.parse(finish(decipher, bytes.subarray(IV_BYTES, -TAG_BYTES)))
  }
}

const CANNOT_OPEN =
  'A stored secret cannot be opened: it was changed, or sealed with another ASH_CREDENTIAL_KEY or secret.key'

function finish(decipher: ReturnType<typeof createDecipheriv>, body: Buffer): string {
  try {
    return Buffer.concat([decipher.update(body), decipher.final()]).toString()
  } catch (error) {
    throw new Error(CANNOT_OPEN, { cause: error })
  }
}

/** The box of this installation: its key comes from ASH_CREDENTIAL_KEY, else from `<dataDir>/secret.key`. */
export async function openSecretBox(options: {
  dataDir: string
  credentialKey?: string
}): Promise<SecretBox> {
  const { dataDir, credentialKey } = options
  if (credentialKey !== undefined) {
    return new SecretBox(scryptSync(credentialKey, 'ash credential key', KEY_BYTES))
  }
  return new SecretBox(await readOrCreateKey(join(dataDir, 'secret.key')))
}

async function readOrCreateKey(path: string): Promise<Buffer> {
  await createPrivateFile(path, `${randomBytes(KEY_BYTES).toString('base64')}\n`)
  const key = Buffer.from(await readFile(path, 'utf8'), 'base64')
  if (key.length !== KEY_BYTES) throw new Error(`${path} does not hold a key of ${KEY_BYTES} bytes`)
  return key
}
