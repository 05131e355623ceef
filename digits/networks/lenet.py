# LeNet: small and fast, for small grayscale images such as handwritten digits.
#
# Designed for 28x28 grayscale; any size from 16x16 works. 431,080 parameters for 28x28 and 10 classes.
# Recommended settings for MNIST: SGD with momentum 0.9, learning rate 0.01 with a step every 33%, batches
# of 64, 5 epochs.
#
# paper: LeCun et al., 1998, “Gradient-Based Learning Applied to Document Recognition”, with ReLU and dropout as
# paper: Caffe's MNIST example has them.
# settings: solver_type=MOMENTUM momentum=0.9 learning_rate=0.01 lr_policy=step lr_step_size=33 lr_step_gamma=0.1
# settings: batch_size=64 train_epochs=5 use_mean=image
# few images: solver_type=ADAM learning_rate=0.001 lr_policy=cosine batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 16
# not keras: its layers are functions of slim, which Keras does not have.


class UserModel(Tower):
    @model_property
    def inference(self):
        height, width, channels = self.input_shape
        x = tf.reshape(self.x, shape=[-1, height, width, channels])
        # Pixels are 0 to 255 minus the mean; 0.0125 is about 1 / their standard deviation in MNIST.
        x = x * 0.0125
        with slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            weights_initializer=tf.contrib.layers.xavier_initializer(),
            weights_regularizer=slim.l2_regularizer(0.0005),
        ):
            model = slim.conv2d(x, 20, [5, 5], padding="VALID", scope="conv1")
            model = slim.max_pool2d(model, [2, 2], padding="VALID", scope="pool1")
            model = slim.conv2d(model, 50, [5, 5], padding="VALID", scope="conv2")
            model = slim.max_pool2d(model, [2, 2], padding="VALID", scope="pool2")
            model = slim.flatten(model)
            model = slim.fully_connected(model, 500, scope="fc1")
            model = slim.dropout(model, 0.5, is_training=self.is_training, scope="do1")
            model = slim.fully_connected(model, self.nclasses, activation_fn=None, scope="fc2")
        return digits.scale_output(model)

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar(accuracy.op.name, accuracy))
        return digits.loss(self.inference, self.y)
