// Node's own HTTP and sockets against each other: many requests over kept connections, then one
// connection that is closed by halves.
const crypto = require('crypto');
const http = require('http');
const net = require('net');

const body = crypto.randomBytes(500000);
let left = 12;

const server = http.createServer((asked, answer) => {
  const parts = [];
  asked.on('data', (part) => parts.push(part));
  asked.on('end', () => answer.end(Buffer.concat(parts)));
});

server.listen(0, '127.0.0.1', () => {
  const port = server.address().port;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  for (let number = 0; number < left; number += 1) {
    const asked = http.request({ port, host: '127.0.0.1', method: 'POST', agent }, (answer) => {
      const parts = [];
      if (answer.socket.remotePort !== port || answer.socket.remoteAddress !== '127.0.0.1') {
        throw new Error(`${answer.socket.remoteAddress}:${answer.socket.remotePort}`);
      }
      answer.on('data', (part) => parts.push(part));
      answer.on('end', () => {
        if (!Buffer.concat(parts).equals(body)) {
          throw new Error('another answer');
        }
        left -= 1;
        if (left === 0) {
          console.log('12 answers');
          agent.destroy();
          server.close();
          halves();
        }
      });
    });
    asked.end(body);
  }
});

function halves() {
  const echo = net.createServer({ allowHalfOpen: true }, (one) => one.pipe(one));
  echo.listen(0, '127.0.0.1', () => {
    const client = net.connect({ port: echo.address().port, host: '127.0.0.1', allowHalfOpen: true });
    let heard = '';
    client.end('half closed');
    client.on('data', (part) => { heard += part; });
    client.on('end', () => { console.log(heard); echo.close(); });
  });
}
